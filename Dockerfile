# Orion's image. Its entrypoint is `orion`; each component is a command of it (`args: [agent]`, ...).
#
#     docker build --tag orion-gpu/orion:0.1.0 .
#     python -m tools.image build                 # the same file with buildah, on bases made of Debian's packages
#
# Three stages: Orion's dependencies, Orion's own wheel, and an image with both but without a compiler. Every download
# is pinned by a hash. BUILDER and RUNTIME need the same Python (3.11 or later) at the same path; BUILDER also needs
# pip. Neither needs a compiler: it comes from PyPI (zig, for glibc 2.17 and later).
# Pass settings for pip and your own certificates as secrets, which stay out of the image:
#
#     docker build --secret id=pip,src=$HOME/.config/pip/pip.conf --secret id=certificates,src=/etc/ssl/cert.pem .
#
# Rejected: `pip install orion-gpu` in one stage (the image would contain pip, a compiler and caches), a distroless base
# (it has no Python of the right version; pass your own as an argument), an image for each component (nine tenths are
# shared).

# The tag is for readers; the digest, which covers all platforms, decides. `make image-locks` renews both digests.
ARG BUILDER=python:3.12-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258
ARG RUNTIME=python:3.12-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258

# -- Orion's dependencies: this layer changes only with requirements.lock ------------------------------------------------
FROM ${BUILDER} AS dependencies
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=0
RUN python3 -m venv --without-pip /opt/orion
COPY tools/image/requirements.lock /build/
# Remove the dependencies' programs, tests and C sources. Compile once, without time stamps: the same sources give the
# same files, and Python does not check them at each start.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=certificates,target=/run/certificates.pem \
    python3 -m pip --python /opt/orion install --quiet --require-hashes --no-deps --only-binary :all: --no-compile \
      --requirement /build/requirements.lock \
 && find /opt/orion/bin -type f -delete \
 && find /opt/orion/lib -depth -type d \( -name tests -o -name test \) -exec rm -r {} + \
 && find /opt/orion/lib \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.pyi' \) -delete \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/orion/lib

# -- Orion's wheel, linked against glibc 2.17 ----------------------------------------------------------------------------
FROM ${BUILDER} AS wheel
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800
COPY tools/image/build-requirements.lock /build/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=certificates,target=/run/certificates.pem \
    python3 -m venv --without-pip /tools \
 && python3 -m pip --python /tools install --quiet --require-hashes --no-deps --only-binary :all: --no-compile \
      --requirement /build/build-requirements.lock
# The environment into which the wheel is installed. This layer comes before the sources, so a change of code reuses it.
COPY --from=dependencies /opt/orion /opt/orion
COPY . /source
WORKDIR /source
RUN --mount=type=cache,target=/root/.cache/zig \
    PATH=/tools/bin:$PATH CC=/source/tools/cc-glibc-2.17 LDFLAGS=-Wl,-s \
    SKBUILD_BUILD_TARGETS="orion_hook;orion_hook_bench;orion_await_agent;orion_profiler;sim;sim_nvml" \
    python3 -c 'from scikit_build_core.build import build_wheel; build_wheel("/wheels")'
# Install below a separate root, so that the image gets a layer with Orion alone.
RUN python3 -m pip --python /opt/orion install --quiet --no-warn-script-location --root /installed --no-deps --no-index \
      --no-compile --find-links /wheels orion-gpu \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /installed -p / /installed/opt/orion/lib

# -- The image -----------------------------------------------------------------------------------------------------------
FROM ${RUNTIME}
# Remove setuid and setgid bits, and pip if the base has it.
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* \
 && echo 'orion:x:65532:65532:Orion:/tmp:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'orion:x:65532:' >> /etc/group
COPY --from=dependencies /opt/orion /opt/orion
COPY --from=wheel /installed /
# These settings suit a read-only root file system: Python code is compiled already, and nothing else is written.
ENV PATH=/opt/orion/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Orion" \
      org.opencontainers.image.description="Share one NVIDIA GPU between a latency-critical process and best-effort ones" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# An unprivileged user. The agent and the device plugin mount devices and write below the host's /run and /var/lib:
# their DaemonSet runs them as root and lists the capabilities that they need.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["orion"]
CMD ["--help"]
