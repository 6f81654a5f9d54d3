#!/bin/sh
# Print a topic with kcat, one JSON object per record with key, headers and timestamp: topic.sh BOOTSTRAP TOPIC
exec kcat -b "$1" -t "$2" -C -o beginning -e -q -J -X isolation.level=read_committed
