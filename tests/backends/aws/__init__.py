"""An AWS for tests: moto, and what moto lacks or gets wrong, which is most of what goes wrong with the real one.

`wire` reads and writes AWS's own protocols, `account` is one account with its clock, its script of faults and the order
of answering; the other modules are the services that are answered here rather than by moto, or corrected after it.
What moto differs in is said where it is put right.
"""

import os
from pathlib import Path

# moto reads these when it is imported, by whichever module is first. Its own 1,300 images would take seconds to load in
# every region.
os.environ.setdefault("MOTO_AMIS_PATH", str(Path(__file__).with_name("images.json")))
os.environ.setdefault("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true")
os.environ.setdefault("MOTO_ENABLE_AMI_VALIDATION", "true")
