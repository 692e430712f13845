"""What depends on an artifact: everything that assets of any recipe are now and that was made of it."""

from pipeline.errors import StoreError
from pipeline.lineage import root_of
from pipeline.store import Store


def made_of(store: Store, stage: str, version: str) -> list[str]:
    """`RECIPE/ASSET` of what an asset has now and that descends from this version, the artifact itself too, also where training began
    from a model that does. Each record is read once. A chain that is broken counts as not descending: `bert verify` tells of it."""
    known: dict[str, bool] = {}

    def descends(digest: str) -> bool:
        if digest not in known:
            known[digest] = False
            record = store.record(digest)
            root = root_of(store, record)
            known[digest] = (record.stage, record.version) == (stage, version) or any(
                descends(each) for each in (*record.inputs.values(), *([root.digest] if root else []))
            )
        return known[digest]

    found = []
    for recipe, asset in store.pointers():
        try:
            record = store.pointer(recipe, asset)
            if record is not None and descends(record.digest):
                found.append(record.path)
        except StoreError:
            continue
    return found
