"""The parts of reports: intervals, plots, words, pages."""
