"""The parts of the store: records, contents, manifests, what may go, the trash, the champion."""
