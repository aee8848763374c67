"""The processes of a gateway: the service and Envoy, started, watched, told of changes, and ended.

terms (what is wanted) -> preflight (can it be) -> up (all of it)
    run_directory, discovery     the files that the processes read
    child                        a program that is started again when it ends
    envoy, service               the two programs
    rules                        the policy in force
    configuration                Envoy's files, made of it: validation (before) -> discovery (the
                                 files) -> acceptance (after)
    drain                        the end, without cutting anything off
"""
