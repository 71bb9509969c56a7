"""Whether whoever asked wants the answer in progress to end early, with what there is of it."""

import threading

stop_flag = threading.Event()
