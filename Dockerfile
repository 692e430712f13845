# The demo in a container:  docker build -t bertworks . && docker run --rm -v bert:/bert -p 3000:3000 bertworks
FROM python:3.11-slim
WORKDIR /bertworks
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make git gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements.lock ./
# torch comes as the CUDA build; a small image names PyTorch's CPU index:  --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX=""
RUN python -m venv .venv \
 && .venv/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url $TORCH_INDEX} torch==2.13.0 \
 && .venv/bin/pip install --no-cache-dir -r requirements.lock
COPY . .
RUN .venv/bin/pip install --no-cache-dir --no-deps --editable . && touch .venv/.runtime
ENV BERT_HOME=/bert PATH=/bertworks/.venv/bin:$PATH
VOLUME /bert
EXPOSE 3000
CMD ["make", "demo"]
