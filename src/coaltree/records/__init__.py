"""Medical records: dated codes → cohort, features, outcomes and costs → a study."""
