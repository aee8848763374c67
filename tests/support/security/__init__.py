"""The corpus of hostile requests, the apps that they are sent to, and the judge.

`corpus` reads the requests, `apps` says what each framework reads of one, `targets` serves the apps
by themselves and behind gateways, `trial` sends the requests and judges what reached the app.
"""
