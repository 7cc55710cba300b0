FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/freshet
WORKDIR /src
COPY requirements.lock ./
RUN /opt/freshet/bin/pip install --require-hashes --no-deps -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY workers workers
COPY loadtest loadtest
RUN /opt/freshet/bin/pip install --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN groupadd --gid 10001 freshet \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin freshet \
 && install -d -o freshet -g freshet -m 0700 /data
COPY --from=build /opt/freshet /opt/freshet
# Everything written goes to /data, so the root file system may be read-only.
# The service listens on loopback until keys exist: create one, then set FRESHET_HOST=0.0.0.0.
ENV PATH=/opt/freshet/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FRESHET_DATA_DIR=/data \
    MPLCONFIGDIR=/data/.matplotlib
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('FRESHET_PORT', '8080') + '/healthz', timeout=2)"]
ENTRYPOINT ["freshet"]
CMD ["up"]
