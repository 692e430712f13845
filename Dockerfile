# The demo in a container:  docker build -t bertworks . && docker run --rm -v bert:/bert -p 3000:3000 bertworks
FROM python:3.11-slim
WORKDIR /bertworks
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make git && rm -rf /var/lib/apt/lists/*
COPY requirements.lock ./
# The CPU build of torch; leave the first line out for the CUDA build.
RUN python -m venv .venv \
 && .venv/bin/pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && .venv/bin/pip install --no-cache-dir -r requirements.lock
COPY . .
RUN .venv/bin/pip install --no-cache-dir --no-deps --editable . && touch .venv/.runtime
ENV BERT_HOME=/bert PATH=/bertworks/.venv/bin:$PATH
VOLUME /bert
EXPOSE 3000
CMD ["make", "demo"]
