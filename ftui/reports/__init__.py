"""What is told of runs to people: compared, as tables, pictures and pages."""
