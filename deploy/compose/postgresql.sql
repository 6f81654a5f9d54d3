-- Users and the database of profile `sql` in deploy/compose.yaml. The pipeline creates its tables, Grafana reads them.
CREATE ROLE pipeline LOGIN PASSWORD 'pipeline';
CREATE ROLE grafana LOGIN PASSWORD 'grafana' IN ROLE pg_read_all_data;
CREATE DATABASE results OWNER pipeline;
