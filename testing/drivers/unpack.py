# SPDX-License-Identifier: BSD-3-Clause
"""The libraries of wheels in one folder: unpack.py FOLDER WHEEL...

Intel's wheels have them in NAME.data/data/lib, each library under up to three names. One that is there
already is linked. Their libOpenCL.so is left out: it would shadow the system's loader."""
import os
import shutil
import sys
import zipfile

folder = sys.argv[1]
os.makedirs(folder)
unpacked = {}
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = os.path.basename(member.filename)
            if ".data/data/lib/" not in member.filename or not name or name.startswith("libOpenCL"):
                continue
            place = os.path.join(folder, name)
            same = unpacked.setdefault((member.CRC, member.file_size), place)
            if same != place:
                os.link(same, place)
                continue
            with archive.open(member) as source, open(place, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
