"""The board side of EdgePlace: standard library, numpy and one TFLite runtime, Python 3.9 or newer.

It imports nothing from ``edgeplace``. It ships as a zipapp under its content hash (``python agent.pyz``) and as a
package in the wheel (``python -m device_agents``).
"""
