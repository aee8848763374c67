"""The processes of a gateway: the service and Envoy, started, watched and stopped.

options -> preflight -> up
    run_directory           the files that the processes read
    child                   a program that is restarted when it ends
    envoy, service          the two programs
    configuration           Envoy's files: validated, written, and checked for acceptance
"""
