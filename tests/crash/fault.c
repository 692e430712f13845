/* Counts the calls of a kind of file operation on paths that match a pattern, in a process and in all that it starts, and at
   the n-th does one bad thing. Loaded by LD_PRELOAD (tests/crash/shim.py), it stands between libc and whoever calls it:
   Python, pyarrow, polars, safetensors, SQLite, Beam's workers. Nothing in the product knows of it.

   Told by the environment:
     CRASH_STATE   a file of struct state, shared by all processes
     CRASH_HOME    what is full or read-only, when the disk is
     CRASH_POINT   OPERATION PATTERN NUMBER, for example: rename (asterisk)/LATEST 2
     CRASH_FAULT   kill, after (killed when it is done), term, stop, parent (the first process is killed), short, ENOSPC, EIO, EROFS
     CRASH_ROOT    pid of the first process
     CRASH_CLOCK   seconds that the wall clock is wrong by
     CRASH_LOG     a file that gets a line, OPERATION PATH, for every change below CRASH_HOME */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct state {
    int count, fired, pid, spoiled; /* spoiled: the error that every change below CRASH_HOME gives from now on */
    char path[4096];
};
static struct state *state;
static char operation[32], pattern[4096], fault[32], home[4096];
static int number, root, log_descriptor = -1;
static long long clock_shift;

__attribute__((constructor)) void crash_arm(void) {
    const char *file = getenv("CRASH_STATE"), *point = getenv("CRASH_POINT"), *shift = getenv("CRASH_CLOCK");
    clock_shift = shift ? atoll(shift) : 0;
    if (!file || !point) return;
    int (*really_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int descriptor = really_open(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *shared = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (shared == MAP_FAILED) return;
    sscanf(point, "%31s %4095s %d", operation, pattern, &number);
    snprintf(fault, sizeof fault, "%s", getenv("CRASH_FAULT") ? getenv("CRASH_FAULT") : "");
    snprintf(home, sizeof home, "%s", getenv("CRASH_HOME") ? getenv("CRASH_HOME") : "");
    root = getenv("CRASH_ROOT") ? atoi(getenv("CRASH_ROOT")) : 0;
    const char *log = getenv("CRASH_LOG");
    if (log) log_descriptor = really_open(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    state = shared;
}

static void place_of(int descriptor, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, out, 4095);
    out[length < 0 ? 0 : length] = 0;
}

static void place_at(int folder, const char *path, char *out) {
    if (path[0] == '/') {
        snprintf(out, 4096, "%s", path);
        return;
    }
    char base[4096];
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) base[0] = 0;
    } else
        place_of(folder, base);
    snprintf(out, 4096, "%.2000s/%.2000s", base, path);
}

static int below_home(const char *path) {
    size_t length = strlen(home);
    return length && !strncmp(path, home, length);
}

static int is_spoiled(const char *name, const char *path) {
    if (!state->spoiled || !below_home(path)) return 0;
    if (state->spoiled == EROFS) return strcmp(name, "fsync") && strcmp(name, "open");
    return !strcmp(name, "write") || !strcmp(name, "create") || !strcmp(name, "mkdir") || !strcmp(name, "link");
}

static int error_named(void) {
    if (!strcmp(fault, "ENOSPC")) return ENOSPC;
    if (!strcmp(fault, "EROFS")) return EROFS;
    if (!strcmp(fault, "EIO")) return EIO;
    return 0;
}

/* 0: nothing happens; > 0: the error to give; -1: half of it is written, then the fault; -2: the fault comes afterwards */
static int due(const char *name, const char *path, const char *other) {
    if (!state) return 0;
    if (log_descriptor >= 0 && below_home(path) && strcmp(name, "open")) dprintf(log_descriptor, "%s %s\n", name, path);
    if (is_spoiled(name, path)) return state->spoiled;
    if (state->fired || strcmp(operation, name)) return 0;
    if (fnmatch(pattern, path, 0) && (!other || fnmatch(pattern, other, 0))) return 0;
    if (__sync_add_and_fetch(&state->count, 1) != number) return 0;
    snprintf(state->path, sizeof state->path, "%s", path);
    state->pid = getpid();
    state->fired = 1;
    int error = error_named();
    if (error == ENOSPC || error == EROFS) state->spoiled = error;
    if (error) return error;
    if (!strcmp(fault, "after")) return -2;
    if (!strcmp(fault, "short")) return -1;
    if (!strcmp(name, "write") && (!strcmp(fault, "kill") || !strcmp(fault, "parent"))) return -1;
    if (!strcmp(fault, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(fault, "parent")) kill(root, SIGKILL);
    if (!strcmp(fault, "term")) kill(getpid(), SIGTERM);
    if (!strcmp(fault, "stop")) kill(getpid(), SIGSTOP);
    return 0;
}

static void afterwards(int what) {
    if (what == -2 || (what == -1 && !strcmp(fault, "kill"))) kill(getpid(), SIGKILL);
    if (what == -1 && !strcmp(fault, "parent")) kill(root, SIGKILL);
}

#define REAL(kind, name) \
    static kind really; \
    if (!really) really = (kind)dlsym(RTLD_NEXT, name);
#define CALLED(name, path, other, call) \
    int what = due(name, path, other); \
    if (what > 0) { errno = what; return -1; } \
    long long result = call; \
    int kept = errno; \
    afterwards(what); \
    errno = kept; \
    return result;

/* ── opening ── */

typedef int (*open_kind)(const char *, int, ...);
typedef int (*openat_kind)(int, const char *, int, ...);
#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
    }
static const char *named(int flags) {
    return (flags & O_CREAT) ? "create" : (flags & (O_WRONLY | O_RDWR)) ? "change" : "open";
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE REAL(open_kind, #name) char place[4096]; \
        if (state) place_at(AT_FDCWD, path, place); \
        CALLED(named(flags), place, NULL, really(path, flags, mode)) }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE REAL(openat_kind, #name) char place[4096]; \
        if (state) place_at(folder, path, place); \
        CALLED(named(flags), place, NULL, really(folder, path, flags, mode)) }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

/* ── descriptors ── */

#define OF(descriptor) char place[4096]; if (state) place_of(descriptor, place);
#define WRITES(name, type, arguments, descriptor, size, whole, half) \
    type name arguments { \
        typedef type (*kind) arguments; REAL(kind, #name) OF(descriptor) \
        int what = due("write", place, NULL); \
        if (what > 0) { errno = what; return -1; } \
        type result = (what == -1 && (size) > 1) ? half : whole; \
        int kept = errno; afterwards(what); errno = kept; return result; }
WRITES(write, ssize_t, (int fd, const void *data, size_t n), fd, n, really(fd, data, n), really(fd, data, n / 2))
WRITES(pwrite, ssize_t, (int fd, const void *data, size_t n, off_t at), fd, n, really(fd, data, n, at), really(fd, data, n / 2, at))
WRITES(pwrite64, ssize_t, (int fd, const void *data, size_t n, off64_t at), fd, n, really(fd, data, n, at), really(fd, data, n / 2, at))
WRITES(writev, ssize_t, (int fd, const struct iovec *parts, int n), fd, n, really(fd, parts, n), really(fd, parts, n / 2))
WRITES(sendfile, ssize_t, (int fd, int from, off_t *at, size_t n), fd, n, really(fd, from, at, n), really(fd, from, at, n / 2))
WRITES(sendfile64, ssize_t, (int fd, int from, off64_t *at, size_t n), fd, n, really(fd, from, at, n), really(fd, from, at, n / 2))
WRITES(copy_file_range, ssize_t, (int from, off64_t *at, int fd, off64_t *to, size_t n, unsigned flags), fd, n,
       really(from, at, fd, to, n, flags), really(from, at, fd, to, n / 2, flags))

#define HELD(name, kind_of, arguments, descriptor, ...) \
    int name arguments { typedef int (*kind) arguments; REAL(kind, #name) OF(descriptor) CALLED(kind_of, place, NULL, really(__VA_ARGS__)) }
HELD(fsync, "fsync", (int fd), fd, fd)
HELD(fdatasync, "fsync", (int fd), fd, fd)
HELD(ftruncate, "truncate", (int fd, off_t size), fd, fd, size)
HELD(ftruncate64, "truncate", (int fd, off64_t size), fd, fd, size)

/* ── names ── */

#define NAMED(name, kind_of, arguments, folder, path, ...) \
    int name arguments { typedef int (*kind) arguments; REAL(kind, #name) char place[4096]; if (state) place_at(folder, path, place); \
        CALLED(kind_of, place, NULL, really(__VA_ARGS__)) }
NAMED(unlink, "unlink", (const char *path), AT_FDCWD, path, path)
NAMED(unlinkat, "unlink", (int at, const char *path, int flags), at, path, at, path, flags)
NAMED(rmdir, "unlink", (const char *path), AT_FDCWD, path, path)
NAMED(mkdir, "mkdir", (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
NAMED(mkdirat, "mkdir", (int at, const char *path, mode_t mode), at, path, at, path, mode)
NAMED(truncate, "truncate", (const char *path, off_t size), AT_FDCWD, path, path, size)
NAMED(symlink, "link", (const char *to, const char *path), AT_FDCWD, path, to, path)
NAMED(symlinkat, "link", (const char *to, int at, const char *path), at, path, to, at, path)

#define MOVED(name, kind_of, arguments, from_at, from, to_at, to, ...) \
    int name arguments { typedef int (*kind) arguments; REAL(kind, #name) char place[4096], other[4096]; \
        if (state) { place_at(to_at, to, place); place_at(from_at, from, other); } \
        CALLED(kind_of, place, other, really(__VA_ARGS__)) }
MOVED(rename, "rename", (const char *a, const char *b), AT_FDCWD, a, AT_FDCWD, b, a, b)
MOVED(renameat, "rename", (int x, const char *a, int y, const char *b), x, a, y, b, x, a, y, b)
MOVED(renameat2, "rename", (int x, const char *a, int y, const char *b, unsigned flags), x, a, y, b, x, a, y, b, flags)
MOVED(link, "link", (const char *a, const char *b), AT_FDCWD, a, AT_FDCWD, b, a, b)
MOVED(linkat, "link", (int x, const char *a, int y, const char *b, int flags), x, a, y, b, x, a, y, b, flags)

/* ── the wall clock ── */

int clock_gettime(clockid_t which, struct timespec *now) {
    typedef int (*kind)(clockid_t, struct timespec *); REAL(kind, "clock_gettime")
    int result = really(which, now);
    if (clock_shift && !result && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += clock_shift;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    typedef int (*kind)(struct timeval *, void *); REAL(kind, "gettimeofday")
    int result = really(now, zone);
    if (clock_shift && !result) now->tv_sec += clock_shift;
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
