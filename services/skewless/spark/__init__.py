"""Spark jobs over the pipeline's topics. All inputs and results are DataFrames."""
