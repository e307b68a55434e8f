"""One process drives one device."""

from .._names import ONE_PROCESS, later_class

DataParallel = later_class("distributed.data_parallel.DataParallel", ONE_PROCESS)
