"""The processes of a gateway: Envoy and the workers of the service, under one supervisor.

preflight -> up
    run_directory           the files that Envoy reads, and sockets
    envoy, service          the programs, run by `runtime.supervisor`
    configuration           Envoy's files: validated, written, and checked for acceptance
"""
