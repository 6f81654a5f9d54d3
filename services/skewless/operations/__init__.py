"""Operations on a pipeline that may be running: its state, its dead letters, and its end."""
