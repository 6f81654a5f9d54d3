DELETE FROM skewless_offsets WHERE pipeline = %s
