"""The only code that knows the ``.tflite`` format: read it, check it, cut it, write it.

``reader.Model`` opens a file, ``cutter.cut`` makes a new one from some of its operators, ``model`` holds the facts
that the rest of EdgePlace works with.
"""
