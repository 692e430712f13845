"""Files that somebody else wrote, read in bounded memory and believed in nothing."""
