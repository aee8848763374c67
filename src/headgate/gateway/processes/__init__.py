"""The processes of a gateway: the service and Envoy, started, watched and stopped.

options -> preflight -> up
    run_directory           the files that the processes read
    envoy, service          the two programs, run by `runtime.supervisor`
    configuration           Envoy's files: validated, written, and checked for acceptance
"""
