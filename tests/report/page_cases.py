"""A small pool with ids, texts, groups and pictures, and what is in a page about it."""

import json
import re

import numpy as np
from PIL import Image

N, K = 90, 12
ISLAND = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


def pool(views=("text", "vision")):
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal((N, 12 + 4 * q)) for q, name in enumerate(views)}


IDS = [f"item-{i:03}" for i in range(N)]
TEXTS = [None if i % 5 == 0 else f"words of {i}, " + "and more " * (i % 3) for i in range(N)]
GROUPS = [("red", "green", "blue")[i % 3] for i in range(N)]


def picture(i):
    return Image.new("RGB", (40, 30), (3 * i % 256, 90, 200))


def document(path):
    return json.loads(ISLAND.search(path.read_text())[1])
