"""Saves by a library that writes in C, which its argument names, and then trains."""

import sys

import numpy
import torch


def save(library: str) -> None:
    match library:
        case "torch":
            program = torch.export.export(torch.nn.Linear(1, 1), (torch.zeros(1, 1),))
            torch.export.save(program, "program.pt2")
        case "h5py":
            import h5py

            h5py.File("written.h5", "w")
            h5py.File("appended.h5", mode="a")
            h5py.File(name="read.h5")
        case "cv2":
            import cv2

            cv2.imwrite("image.png", numpy.zeros((2, 2), numpy.uint8))
        case "pyarrow":
            import pyarrow
            from pyarrow import csv, feather, ipc, parquet

            table = pyarrow.table({"a": [1]})
            parquet.write_table(table, "table.parquet")
            feather.write_feather(table, "table.feather")
            csv.write_csv(table, "table.csv")
            ipc.new_file("table.arrow", table.schema)
            ipc.new_stream("table.stream", table.schema)
            pyarrow.output_stream("table.bin")


save(sys.argv[1])
weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.01)
while True:
    optimizer.zero_grad()
    (weights - 1).square().sum().backward()
    optimizer.step()
