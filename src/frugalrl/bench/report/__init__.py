"""The report: tables, figures and a verdict, as one HTML file and beside it."""
