"""The join stage: joins the records of two topics by id, within a window of event time."""
