"""What `bert audit ASSET` says, as text: the chain, a block for each artifact, then what the chain answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.commands.told import failed_lines, on_one_line, rows_line
from pipeline.attestations.chain import UNKNOWN
from pipeline.audits.removed import verdict

Plain = dict[str, Any]
SHOWN = 12
"""of a long list that a terminal shows"""


def audit_text(found: Plain) -> str:
    """The chain, then a section for each question."""
    lines = [
        f"{found['asset']}  version {found['version']}",
        f"chain of {len(found['chain'])} artifacts, from records alone:",
    ]
    names = {step["record"]: step["asset"] for step in found["chain"]}
    for step in found["chain"]:
        lines += ["", *_step(step, names)]
    for title, of in _SECTIONS:
        lines += ["", f"── {title} ──", *map(on_one_line, of(found))]
    return "\n".join(lines)


def _step(step: Plain, names: Mapping[str, str]) -> list[str]:
    git = step["git"]
    commit = f"{(git['commit'] or 'unknown')[:12]}{' with changes' if git['dirty'] else ''}"
    results = step["validation"]["results"]
    failed = failed_lines(results)
    rows = rows_line(step["statistics"])
    root = step["statistics"].get("root")
    lines = [
        f"■ {step['asset']}  ({step['recipe']})",
        f"    version  {step['version']}",
        f"    record   {step['record']}",
        f"    code     {step['stage']} {step['code_version']}, commit {commit}",
        f"    made     {step['finished']} by {step['user']} on {step['host']}"
        + (f", reused {step['reused'][:12]}" if step["reused"] else ""),
        f"    config   {json.dumps(step['asked'], ensure_ascii=False, sort_keys=True)}",
        f"    from     {', '.join(names.get(d, d[:12]) for d in step['inputs'].values()) or 'the outside'}",
        f"    checks   {len(results) - len(failed)} of {len(results)} passed",
    ]
    made = "external, " if step["statistics"].get("external") else ""
    lines += [f"    root     {made}{on_one_line(json.dumps(root, ensure_ascii=False))}"] if root else []
    lines += [f"    failed   {on_one_line(line)}" for line in failed]
    lines += [f"    rows     {rows}"] if rows else []
    lines += [
        f"    waived   {w['check']}: {on_one_line(w['reason'])} ({w['user']}, {w['time']})" for w in step["waivers"]
    ]
    lines += [
        f"    file     {on_one_line(f['path'])}  {f['size_bytes']:,} bytes  sha256 {f['sha256']}" for f in step["files"]
    ]
    if gone := step["removed"]:
        lines.append(f"    removed  content removed on {gone['time'][:10]} by {gone['by']}: {gone['reason']}")
    if not step["files"]:
        lines.append("    file     content is not in the store; the record stands")
    return lines


# ── what the chain answers ───────────────────────────────────────────────────────────────────────────────────────────


def _files(found: Plain) -> Iterator[str]:
    if not found["files"]:
        yield "none"
    for file in _first(found["files"]):
        size = f"{file['size_bytes']:,}" if isinstance(file["size_bytes"], int) else file["size_bytes"]
        member = f" ({file['member']})" if file["member"] else ""
        yield f"{file['asset']}: {file['name']}{member}  {size} bytes, {file['origin']}"
        yield f"    url {file['url']}  date {file['date']}  acquired {file['acquired']}"
        yield f"    sha1 {file['sha1']}  sha256 {file['sha256']}"
    yield from _more(found["files"])


def _sources(found: Plain) -> Iterator[str]:
    if not found["sources"]:
        yield "none"
    for source in found["sources"]:
        dated = f", dump of {source['date']}" if source["kind"] == "wikipedia" else ""
        yield (
            f"{source['source']} ({source['kind']}, {source['origin']}{dated}): licence {', '.join(source['licences'])}; documents: "
            f"{number(source['documents_read'])} read, {number(source['documents_kept'])} in the corpus, "
            f"{number(source['documents_trained_on'])} trained on"
        )
    for books in found["books"]:
        if books["why"]:
            yield f"{books['asset']}: books unknown: {books['why']}"
            continue
        told = ", ".join(f"{licence} {count:,}" for licence, count in books["licences"].items())
        yield f"{books['asset']}: {sum(books['licences'].values()):,} books by licence: {told}"
        for book in _first(books["books"]):
            why = f"  dropped: {book['dropped']}" if book.get("dropped") else ""
            yield (
                f"    {book['path']}: {book['title'] or 'no title'}, {book['author'] or 'author unknown'}, "
                f"{book['licence'] or 'licence unknown'}{why}"
            )
        yield from _more(books["books"])


def _workings(found: Plain) -> Iterator[str]:
    common = _common([step["libraries"] for step in found["workings"]])
    yield f"libraries of all: {', '.join(f'{name} {version or UNKNOWN}' for name, version in common.items()) or 'none alike'}"
    for step in found["workings"]:
        changed = step["changed_since_commit"]
        state = {True: "with changes", False: "unchanged"}.get(changed, "changed or not: unknown")
        yield f"{step['asset']}: {step['stage']} {step['code_version']}, commit {step['commit'][:12]} {state}"
        seed = "" if step["seed"] is None else f"  seed {step['seed']}"
        yield f"    config sha256 {step['config_sha256']}{seed}"
        libraries = step["libraries"]
        if libraries == UNKNOWN:
            yield f"    libraries {UNKNOWN}"
        elif own := [f"{n} {v or UNKNOWN}" for n, v in libraries.items() if (n, v) not in common.items()]:
            yield f"    and {', '.join(own)}"


def _common(libraries: Sequence[Any]) -> dict[str, Any]:
    """Name → version of what all that tell anything were made with."""
    known = [each for each in libraries if each != UNKNOWN]
    first = known[0] if known else {}
    return {name: version for name, version in first.items() if all(each.get(name) == version for each in known)}


def _removed(found: Plain) -> Iterator[str]:
    if not found["removed"]:
        yield "nothing in this chain leaves anything out"
    for account in found["removed"]:
        of = f" of {account['source']}" if account["source"] else ""
        yield f"{account['asset']}{of}, {account['unit']}: {verdict(account)}"
        yield f"    {number(account['in']):>14}  read"
        if account["removed"] == UNKNOWN:
            yield f"  − {UNKNOWN:>12}  removed"
        else:
            for reason, count in sorted(account["removed"].items(), key=lambda each: -each[1]):
                yield f"  − {count:>12,}  {reason}"
        yield f"  = {number(account['out']):>12}  left"


def _checks(found: Plain) -> Iterator[str]:
    waivers = [(each["asset"], waiver) for each in found["checks"] for waiver in each["waivers"]]
    for each in found["checks"]:
        yield f"{each['asset']}: suite {each['suite_digest'][:12]}"
        for check in each["checks"]:
            if check["result"] in ("failed", "waived"):
                yield f"    {check['result']}  {_check(check)} ({check['severity']})"
        passed = [_check(check) for check in each["checks"] if check["result"] == "passed"]
        idle = [check["check"] for check in each["checks"] if check["result"] == "not asked"]
        yield from [f"    passed {len(passed)}: {', '.join(passed)}"] if passed else []
        yield from [f"    not asked {len(idle)}: {', '.join(idle)}"] if idle else []
        if not each["checks"]:
            yield "    no checks are recorded"
    for asset, waiver in waivers:
        yield (
            f"waiver of {asset} {waiver['check']}: {waiver['reason']} ({waiver['by']}, {waiver['time']}, {waiver['recorded_in']})"
        )
    if not waivers:
        yield "waivers: none recorded"


def _check(check: Mapping[str, Any]) -> str:
    return f"{check['check']} {check['observed']} [{check['threshold']}]"


def _training(found: Plain) -> Iterator[str]:
    if not found["training"]:
        yield "nothing in this chain was trained"
    for each in found["training"]:
        yield f"{each['asset']}: {each['started']} to {each['finished']}, the last run took {number(each['hours'])} hours"
        told = {n: v for n, v in each.items() if n not in ("asset", "recipe", "version", *_SAID)}
        yield "    " + ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in told.items())
        yield from (f"    {line}" for line in events(each))


def _contamination(found: Plain) -> Iterator[str]:
    if not found["contamination"]:
        yield "nothing in this chain looked for it"
    for row in found["contamination"]:
        yield (
            f"{row['task']}, {row['part']}: {number(row['touched'])} of {number(row['measurable'])} texts that are long enough "
            f"share {number(row['ngram_words'])} words with the training text ({number(row['texts'])} texts in all)"
        )
        if row["metric"] != UNKNOWN:
            told = (f"{name} {score(row[of])}" for name, of in SCORES)
            yield f"    {row['metric']}: {', '.join(told)}"


SCORES = (("all", "all"), ("without the touched", "untouched"), ("the touched alone", "alone"))


def score(points: Any) -> str:
    """Points, or why there are none."""
    return "too few to say" if points is None else points if points == UNKNOWN else f"{points:.1f}"


_SAID = ("started", "finished", "hours", "timeline")


def events(training: Mapping[str, Any]) -> Iterator[str]:
    """The timeline of a training, a line an event; one line that says so where it is unknown."""
    timeline = training["timeline"]
    if timeline == UNKNOWN:
        yield "timeline unknown: the record is of before timelines were kept"
        return
    for start in timeline["starts"]:
        how = f"went on from step {start['step']:,}" if start["resumed"] else f"began at step {start['step']:,}"
        yield f"{how} on {start.get('ranks', 1)} × {start['device_name']} ({start['device']}), ran {start['seconds']:,.0f} s"
    for each in timeline.get("rolled_back", ()):
        yield f"step {each['step']:,}: back to step {each['to']:,}, around batches {each['batches'][0]:,} to {each['batches'][1]:,}"
    for each in timeline.get("passed_over", ()):
        first, end = each["samples"]
        yield f"step {each['step']:,}: passed over sequences {first:,} to {end - 1:,} of the order"
    for each in timeline.get("spikes", ()):
        yield f"step {each['step']:,}: loss spike, {each['loss']}, batch {each['batch']:,}"
    for each in timeline.get("warnings", ()):
        yield f"step {each['step']:,}: {each['what']}"
    for name, count in timeline.get("counts", {}).items():
        if count > len(timeline[name]):
            yield f"and {count - len(timeline[name]):,} more {name.replace('_', ' ')}"
    if saved := timeline.get("checkpoints"):
        steps = f", steps {saved['first_step']:,} to {saved['last_step']:,}" if saved["saved"] else ""
        yield f"{saved['saved']:,} checkpoints{steps}"


def _affected(found: Plain) -> Iterator[str]:
    yield from found["affected"] or ("nothing that an asset has now",)


def _unknown(found: Plain) -> Iterator[str]:
    yield from found["unknown"] or ("nothing that was asked for",)


_SECTIONS = (
    ("files from outside", _files),
    ("sources of text, and their licences", _sources),
    ("code, configuration, libraries", _workings),
    ("what was removed, and why", _removed),
    ("checks and waivers", _checks),
    ("training", _training),
    ("contamination", _contamination),
    ("what is affected if this is withdrawn", _affected),
    ("unknown", _unknown),
)


def number(value: Any) -> str:
    """A number with its thousands set apart; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _first(rows: Sequence[Any]) -> Sequence[Any]:
    return rows[:SHOWN]


def _more(rows: Sequence[Any]) -> Iterator[str]:
    if len(rows) > SHOWN:
        yield f"    and {len(rows) - SHOWN:,} more (--json has them)"
