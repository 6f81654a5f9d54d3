SELECT EXISTS (SELECT 1 FROM skewless_offsets WHERE pipeline = %s)
