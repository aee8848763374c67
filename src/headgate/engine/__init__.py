"""Request in, decision out: each use case once, without I/O.

A `Plan` (`plan`) has the rules, keys and checks of a request, `Engine` (`use_cases`) carries it out
on a store, and a `Verdict` (`verdict`) is the result. Read `use_cases` first.
"""
