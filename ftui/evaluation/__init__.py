"""What is measured of answers and of models, as values: measures of texts, differences with intervals, results."""
