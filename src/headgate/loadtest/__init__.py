"""Load tests: bounded traffic against a server, and a verdict on its limit.

Read `judgement` first: the verdict. `client` sends, `answers` reads responses, `report` sums up.
"""
