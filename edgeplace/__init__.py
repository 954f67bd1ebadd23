"""EdgePlace: place every operator of a TFLite model on the processor of a board where it is fastest and right.

The road a model travels is the list of modules in ``tests/test_layers.py``; ``controller`` holds the runs as
plain functions. Importing this package defines things and does nothing else.
"""

__version__ = "0.1.0"
