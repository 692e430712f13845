"""The answers of an audit, each a pure function of the chain behind an artifact: plain values, UNKNOWN for what no record tells.

origins    the exact bytes from outside, the sources of text, the books
workings   code, configuration and libraries of every stage
removed    what was read, what was removed and why, what is left: accounts that come to zero
checked    checks with thresholds and results, waivers
trained    how training went
overlap    how much of the benchmarks stands in the training text
"""
