# The page in a container: the embedded model is inside and nothing is fetched at run time.
#   docker build -t surelock .                             for the CPU
#   docker build -t surelock --build-arg TORCH=cu130 .     for NVIDIA GPUs: any CUDA build that PyTorch offers
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

ARG TORCH=cpu
RUN useradd --create-home --uid 1000 user
WORKDIR /home/user/app

COPY requirements.txt ./
RUN pip install --no-cache-dir --index-url "https://download.pytorch.org/whl/${TORCH}" "$(grep '^torch[<>=~]' requirements.txt)" \
 && pip install --no-cache-dir -r requirements.txt

# The sources belong to root: the server cannot change them. The mode makes them readable whatever the checkout's umask.
COPY --chmod=755 app.py ./
COPY --chmod=755 surelock surelock
COPY --chmod=755 assets assets

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HOME=/home/user/.cache/huggingface \
    HF_HUB_OFFLINE=1 \
    GRADIO_TEMP_DIR=/home/user/.cache/gradio \
    GRADIO_ANALYTICS_ENABLED=False \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860

USER 1000
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-I", "-c", "from urllib.request import *; build_opener(ProxyHandler({})).open('http://127.0.0.1:7860/gradio_api/app_id', timeout=4)"]
CMD ["python", "app.py"]
