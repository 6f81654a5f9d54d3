CREATE TEMPORARY TABLE skewless_batch ({temporary_definitions}) ON COMMIT DELETE ROWS
