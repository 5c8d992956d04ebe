"""Regression of many binary outcomes whose coefficients are the leaves of one tree."""
