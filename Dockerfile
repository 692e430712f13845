# The demo in a container:  docker build -t bertworks . && docker run --rm -v bert:/bert bertworks
# The UI, for this machine only:  docker run --rm -v bert:/bert -p 127.0.0.1:3000:3000 bertworks bert ui --host 0.0.0.0
FROM python:3.11-slim
WORKDIR /bertworks
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make git gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements.lock ./
# torch comes as the CUDA build; a small image names PyTorch's CPU index:  --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX=""
# more packages beside the locked ones:  --build-arg EXTRA="dagster-k8s dagster-postgres s3fs"
ARG EXTRA=""
RUN python -m venv .venv \
 && .venv/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url $TORCH_INDEX} torch==2.13.0 \
 && .venv/bin/pip install --no-cache-dir -r requirements.lock \
 && if [ -n "$EXTRA" ]; then .venv/bin/pip install --no-cache-dir --constraint requirements.lock $EXTRA; fi
COPY . .
RUN .venv/bin/pip install --no-cache-dir --no-deps --editable . && touch .venv/.runtime \
 && useradd --uid 1000 --create-home bert && mkdir /bert && chown bert /bert
# the code stays root's: what runs writes to its home alone
USER bert
ENV BERT_HOME=/bert PATH=/bertworks/.venv/bin:$PATH
VOLUME /bert
EXPOSE 3000
CMD ["make", "demo"]
