# A worker of Beam (Flink, Spark, Dataflow) with this package at the locked versions:
#     docker build -f docker/beam-worker.Dockerfile -t REGISTRY/bertworks-beam-worker .
# It also submits: docker run --entrypoint bert … run RECIPE. For Dataflow add  --build-arg EXTRA="apache-beam[gcp]".
FROM apache/beam_python3.11_sdk:2.77.0 AS beam

FROM python:3.11-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /bertworks
COPY requirements.lock ./
# what only training needs stays out; the versions of all else are those of the machine that submits
ARG EXTRA=""
RUN grep -v '^torch==' requirements.lock > without-torch.lock \
 && pip install --no-cache-dir --requirement without-torch.lock \
 && if [ -n "$EXTRA" ]; then pip install --no-cache-dir --constraint without-torch.lock $EXTRA; fi
COPY . .
RUN pip install --no-cache-dir --no-deps --editable .
# Arrow's own allocator keeps what was freed: a fifth more memory, and not faster
ENV ARROW_DEFAULT_MEMORY_POOL=system
COPY --from=beam /opt/apache/beam /opt/apache/beam
# a worker pool beside a Flink task manager:  --worker_pool
ENTRYPOINT ["/opt/apache/beam/boot"]
