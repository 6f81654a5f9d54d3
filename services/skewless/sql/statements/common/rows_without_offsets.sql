SELECT EXISTS (SELECT 1 FROM {table})
    AND NOT EXISTS (SELECT 1 FROM skewless_offsets WHERE pipeline = %s AND stage = %s)
