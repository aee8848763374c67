"""What a check costs inside one process, beside its peers and beside a bare dict."""
