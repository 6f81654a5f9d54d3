"""The stages left and right: write the records of a joined topic again, partitioned by id."""
