"""The machine: disks, places, processes, locks, the terminal."""
