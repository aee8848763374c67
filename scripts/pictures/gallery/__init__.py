"""What each algorithm does to the same requests, as pictures. On virtual time, the same bytes."""
