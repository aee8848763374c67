"""Real traffic, bounded, against something that limits: does the limit hold?"""
