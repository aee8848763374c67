"""Request in, decision out: each use case once, without I/O.

A `Plan` (`plan`) says what to ask the store about a request, `Engine` (`use_cases`) asks it, and a
`Verdict` (`verdict`) says what came of it. Read `use_cases` first.
"""
