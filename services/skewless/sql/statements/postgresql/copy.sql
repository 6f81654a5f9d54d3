COPY skewless_batch FROM STDIN
