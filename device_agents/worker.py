"""The child process in which every foreign library runs. Its death is a result; the parent puts a name on it.

The parent (:mod:`device_agents.daemon`) and this process speak the same frames as host and agent, over two pipes.
A job is the host's request as it came, with one addition: ``paths``, a map from the hash of every blob the request
names to the local file that holds it. The files are complete, have that hash and stay while the job runs.

What a job's fields look like when they arrive here (the parent has checked all of it):

* ``model``: a hash; ``platform``: the JSON object of :mod:`device_agents.protocol`.
* ``plan``/``plans``: as in :mod:`device_agents.protocol`; segments name earlier segments only; each source
  ``["constant", sha256, dtype, shape]`` is in ``paths``.
* an *array blob* is ``{"blob": sha256, "dtype": name, "shape": [...]}``; the file holds the raw bytes that
  :func:`device_agents.arrays.decode_array` reads (C order, little endian; dtype ``string`` is length-prefixed).
* ``inputs`` of ``run``, ``measure`` and ``interleave``: a list of samples, each a list of array blobs, one per graph
  input. ``inputs`` of ``try`` and ``probe``: one list of array blobs or ``null`` (the worker makes up that input), one
  per input of the file; absent or empty means all are made up.
* ``deadline_s`` and ``stage_deadline_s`` are the parent's business.

The code that does a job is ``device_agents.plan_runner``, imported at the first job, so that a library that crashes
when it is imported is reported like any other death::

    context = WorkerContext(progress)                          # once per worker
    header, pieces = handle_job(job, payload, context)         # per job; header without "ok" and "id" is completed

``progress(stage="compile", segment=2, platform="npu", **facts)`` tells the parent what is about to happen; call it
*before* each stage that can hang or die. The last call places a death, and resets ``stage_deadline_s``. Stages:
``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check``.

What ``handle_job`` may raise, and what the host then gets:

* ``device_agents.runtimes.StageError`` -> the failure it describes,
* :class:`device_agents.protocol.RequestError` -> an error (the request is wrong),
* ``MemoryError`` -> failure ``out_of_memory``, and the worker ends,
* anything else -> failure by the last stage: ``compile_failed``, ``prepare_failed``, else ``invoke_failed``; before
  any stage it is an error of kind ``worker_error``.
"""
