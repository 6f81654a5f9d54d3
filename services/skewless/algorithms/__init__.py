"""Pure algorithms: data and `now` in, data out. No I/O, no clock, no logging, no Kafka, no unseeded random numbers."""
