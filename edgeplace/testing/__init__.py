"""Fakes and toy graphs, for our tests and for users who test with EdgePlace; imported by no other part of it."""
